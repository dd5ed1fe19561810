// What scrolls sideways can be reached by keyboard: the theme takes that away again where no mouse is found.
const reachable = () => {
  for (const each of document.querySelectorAll(".md-typeset pre > code, .md-typeset__scrollwrap"))
    if (!each.hasAttribute("tabindex")) each.tabIndex = 0
}
new MutationObserver(reachable).observe(document.body, {
  attributeFilter: ["tabindex"], childList: true, subtree: true
})
reachable()
