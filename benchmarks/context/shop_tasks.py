"""Tasks around tickets, repositories, the stock and payments."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.context.task import Task, call


def _task(text: str, *calls: object) -> Task:
    return Task(text, calls)  # type: ignore[arg-type]


def shop_tasks() -> Iterator[Task]:
    """Give the tasks, in a fixed order."""
    yield from _with_tickets()
    yield from _with_code()
    yield from _with_stock()
    yield from _with_money()


def _with_tickets() -> Iterator[Task]:
    for words, person, minutes in (
        ("empty cart", "lena", 90),
        ("password reset", "anna", 45),
        ("dark mode", "omar", 30),
        ("March invoices", "petra", 120),
    ):
        yield _task(
            f"Give the ticket about {words} to {person} and plan it for the current sprint.",
            call("tickets:search_issues", query=words),
            call("tickets:assign_issue", issue_id="$0[0].id", assignee=person),
            call("tickets:list_sprints", project="WEB"),
            call("tickets:add_to_sprint", issue_id="$0[0].id", sprint_id="$2[0].id"),
        )
        yield _task(
            f"I am done with the bug on {words}: book {minutes} minutes, close it and say in a comment that it "
            "is fixed.",
            call("tickets:search_issues", query=words),
            call("tickets:log_work", issue_id="$0[0].id", minutes=minutes),
            call("tickets:transition_issue", issue_id="$0[0].id", status="done", resolution="fixed"),
            call("tickets:add_comment", issue_id="$0[0].id", body="Fixed."),
        )
        yield _task(
            f"What was said on the {words} issue so far? Raise its priority to urgent and mail {person.capitalize()}.",
            call("tickets:search_issues", query=words),
            call("tickets:list_comments", issue_id="$0[0].id"),
            call("tickets:update_issue", issue_id="$0[0].id", priority="urgent"),
            call(
                "mail:send_message", to=[f"{person}@acme.example"], subject="$0[0].summary", body="This is urgent now."
            ),
        )
        yield _task(
            f"Set up a meeting with {person.capitalize()} tomorrow at two to look at the {words} problem, and "
            "link it in the ticket.",
            call("tickets:search_issues", query=words),
            call(
                "calendar:create_event",
                title="$0[0].summary",
                start="2026-11-28T14:00",
                end="2026-11-28T14:30",
                attendees=[f"{person}@acme.example"],
            ),
            call("tickets:add_comment", issue_id="$0[0].id", body="$1.id"),
        )
    for summary, project, other in (
        ("Cart forgets coupons", "WEB", "empty cart"),
        ("Backups are late", "OPS", "disk usage"),
        ("Login page is slow", "WEB", "password reset"),
    ):
        yield _task(
            f'Report "{summary}" to {project} with high priority. It has to do with the one about {other}, so '
            "relate them.",
            call("tickets:create_issue", project=project, summary=summary, priority="high"),
            call("tickets:search_issues", query=other),
            call("tickets:link_issues", issue_id="$0.id", other_id="$1[0].id", kind="relates_to"),
        )
    for person in ("anna", "omar", "petra", "lena"):
        yield _task(
            f"{person.capitalize()} looks after the disk runbook now: make a directory /plans/{person} and move "
            "it there.",
            call("files:search_files", query="runbook"),
            call("files:create_directory", path=f"/plans/{person}"),
            call("files:move_file", source="$0[0].path", target=f"/plans/{person}/runbook.md"),
        )
        yield _task(
            f"List what {person.capitalize()} is working on, and write it into a note for our next talk.",
            call("tickets:search_issues", assignee=person, status="open"),
            call("notes:create_note", title=f"Talk with {person.capitalize()}", body="$0[0].summary"),
        )


def _with_code() -> Iterator[Task]:
    for repo, path, branch in (
        ("webshop", "src/cart.py", "cart-rounding"),
        ("infra", "alerts.yaml", "lower-threshold"),
        ("webshop", "README.md", "better-readme"),
    ):
        yield _task(
            f"Change {path} in acme/{repo} on a new branch {branch} and propose it for main.",
            call("repos:get_file_contents", owner="acme", repo=repo, path=path),
            call("repos:create_branch", owner="acme", repo=repo, branch=branch),
            call(
                "repos:commit_file",
                owner="acme",
                repo=repo,
                path=path,
                content="$0",
                message=f"Change {path}",
                branch=branch,
            ),
            call("repos:create_pull_request", owner="acme", repo=repo, title=f"Change {path}", head=branch),
        )
        yield _task(
            f"What happened on the main branch of acme/{repo} lately? Publish version 1.4 with that as the "
            f"notes. It is about {path}.",
            call("repos:list_commits", owner="acme", repo=repo),
            call("repos:create_release", owner="acme", repo=repo, tag="v1.4.0", notes="$0[0].message"),
        )
        yield _task(
            f"File a ticket that {path} of {repo} needs an owner, with the latest change of the repository in "
            "the text.",
            call("repos:list_commits", owner="acme", repo=repo, limit=1),
            call("tickets:create_issue", project="WEB", summary=f"{path} needs an owner", description="$0[0].message"),
        )
    for method in ("merge", "squash", "rebase"):
        yield _task(
            f"Approve the open pull request of the web shop and get it in with {method}; the ticket about the "
            "cart is done then.",
            call("repos:list_pull_requests", owner="acme", repo="webshop"),
            call("repos:add_review_comment", pull_id="$0[0].id", body="Good.", verdict="approve"),
            call("repos:merge_pull_request", pull_id="$0[0].id", method=method),
            call("tickets:search_issues", query="cart"),
            call("tickets:transition_issue", issue_id="$3[0].id", status="done"),
        )
    for words in ("threshold", "total", "serve"):
        yield _task(
            f'Where do we have "{words}" in our code? Send me the path by mail.',
            call("repos:search_code", query=words),
            call("mail:send_message", to=["me@acme.example"], subject=f"Where {words} is", body="$0[0]"),
        )
        yield _task(
            f"Which branches does the web shop have, and is there a pull request that changes {words}? Ask for a "
            "test there.",
            call("repos:list_branches", owner="acme", repo="webshop"),
            call("repos:list_pull_requests", owner="acme", repo="webshop"),
            call("repos:get_pull_request", pull_id="$1[0].id"),
            call("repos:add_review_comment", pull_id="$1[0].id", body="Please add a test.", verdict="request_changes"),
        )


def _with_stock() -> Iterator[Task]:
    for product, pieces, price in (
        ("Desk lamp", 40, 35.0),
        ("Monitor 27 inch", 25, 249.0),
        ("Office chair", 12, 199.0),
        ("Travel bag", 60, 55.0),
    ):
        yield _task(
            f"We need {pieces} more pieces of the {product.lower()} in Berlin. Get them from the usual supplier.",
            call("inventory:search_products", query=product),
            call(
                "inventory:create_purchase_order",
                supplier_id="$0[0].supplier_id",
                product_id="$0[0].id",
                quantity=pieces,
                warehouse="berlin",
            ),
        )
        yield _task(
            f"The {product.lower()} should cost {price:.0f} euros from now on. Tell Lena how many we have left.",
            call("inventory:search_products", query=product),
            call("inventory:update_price", product_id="$0[0].id", price=price),
            call("inventory:get_stock_level", product_id="$0[0].id"),
            call("mail:send_message", to=["lena@acme.example"], subject=f"{product}: new price", body="$0[0].name"),
        )
        yield _task(
            f"Two of the {product.lower()}s in Berlin are broken. Write them off and send one piece over to Lyon.",
            call("inventory:search_products", query=product),
            call("inventory:adjust_stock", product_id="$0[0].id", warehouse="berlin", delta=-2, reason="broken"),
            call("inventory:transfer_stock", product_id="$0[0].id", source="berlin", target="lyon", quantity=1),
        )
        yield _task(
            f"The delivery of {pieces} x {product.lower()} that we order today comes at once: order it for Lyon, "
            "book it in, and "
            "close the matter with a ticket comment on the load balancer ticket.",
            call("inventory:search_products", query=product),
            call(
                "inventory:create_purchase_order",
                supplier_id="$0[0].supplier_id",
                product_id="$0[0].id",
                quantity=pieces,
                warehouse="lyon",
            ),
            call("inventory:receive_purchase_order", order_id="$1.id"),
            call("tickets:search_issues", query="load balancer"),
            call("tickets:add_comment", issue_id="$3[0].id", body="$1.id"),
        )
    for place in ("berlin", "lyon"):
        yield _task(
            f"What is running out in {place.capitalize()}? Order twenty of the first one and save the list on "
            "the drive.",
            call("inventory:list_low_stock", warehouse=place),
            call(
                "inventory:create_purchase_order",
                supplier_id="$0[0].supplier_id",
                product_id="$0[0].id",
                quantity=20,
                warehouse=place,
            ),
            call("files:upload_file", path=f"/stock/{place}.txt", content="$0[0].name"),
        )
    for sku, name, price in (
        ("MUG-01", "Coffee mug", 12.0),
        ("PEN-77", "Fountain pen", 29.0),
        ("CBL-03", "Charging cable", 15.0),
    ):
        yield _task(
            f"Add a {name.lower()} ({sku}) for {price:.0f} euros to the shop, supplied by the first of our "
            "suppliers, with 10 "
            "pieces in Berlin.",
            call("inventory:list_suppliers"),
            call("inventory:create_product", sku=sku, name=name, price=price, supplier_id="$0[0].id"),
            call("inventory:adjust_stock", product_id="$1.id", warehouse="berlin", delta=10, reason="first stock"),
        )


def _with_money() -> Iterator[Task]:
    for company, email, cents in (
        ("Northwind", "kim@northwind.example", 90000),
        ("Fabrikam", "sam@fabrikam.example", 25000),
        ("Tailspin", "ida@tailspin.example", 9900),
    ):
        euros = cents // 100
        yield _task(
            f"Bill {company} {euros} euros for consulting and mail it to them.",
            call("payments:find_customer", query=company),
            call("payments:create_invoice", customer_id="$0[0].id"),
            call("payments:add_invoice_item", invoice_id="$1.id", description="Consulting", amount=cents),
            call("payments:finalize_invoice", invoice_id="$1.id"),
            call("payments:send_invoice", invoice_id="$1.id"),
        )
        yield _task(
            f"{company} wants the last payment back. Do it, and apologize by mail.",
            call("payments:find_customer", query=company),
            call("payments:list_charges", customer_id="$0[0].id"),
            call("payments:refund_charge", charge_id="$1[0].id"),
            call("mail:send_message", to=[email], subject="Your refund", body="We are sorry. The money is on its way."),
        )
        yield _task(
            f"Put {company} on the team plan with a new code for 20 percent off for three months.",
            call("payments:find_customer", query=company),
            call("payments:create_coupon", code=f"{company.upper()}20", percent_off=20, months=3),
            call("payments:create_subscription", customer_id="$0[0].id", plan="team", coupon="$1"),
        )
        yield _task(
            f"Does {company} owe us anything? If there is a bill, remind them in a friendly tone and log that in "
            "the history.",
            call("payments:find_customer", query=company),
            call("payments:list_invoices", customer_id="$0[0].id"),
            call("mail:send_message", to=[email], subject="A friendly reminder", body="Your invoice is still open."),
            call("crm:search_contacts", query=company),
            call("crm:log_activity", contact_id="$3[0].id", kind="email", text="Reminder sent", day="2026-11-27"),
        )
        yield _task(
            f"Make a page where {company} can pay {euros} euros for training, send it to them, and keep the "
            "address in a note.",
            call("payments:create_payment_link", description="Training", amount=cents),
            call("mail:send_message", to=[email], subject="Payment", body="$0"),
            call("notes:create_note", title=f"Payment {company}", body="$0"),
        )
        yield _task(
            f"Sign up a sister company of {company}, {company} Labs, as a customer and as a lead for {euros} euros.",
            call("payments:create_customer", name=f"{company} Labs", email=f"labs.{email}"),
            call("crm:create_contact", name=f"{company} Labs", email="$0.email", company=f"{company} Labs"),
            call("crm:create_deal", name=f"{company} Labs", company=f"{company} Labs", amount=euros),
        )
    for plan in ("solo", "enterprise"):
        yield _task(
            f"Start the {plan} plan for Fabrikam with thirty days free, and end it right away as they changed "
            "their mind.",
            call("payments:find_customer", query="Fabrikam"),
            call("payments:create_subscription", customer_id="$0[0].id", plan=plan, trial_days=30),
            call("payments:cancel_subscription", subscription_id="$1.id", at_period_end=False),
        )
    for reason in ("duplicate", "wrong total", "wrong address"):
        yield _task(
            f"Void the open invoice of Northwind ({reason}) and write Kim that a new one follows. What is our balance?",
            call("payments:find_customer", query="Northwind"),
            call("payments:list_invoices", customer_id="$0[0].id", status="open"),
            call("payments:void_invoice", invoice_id="$1[0].id", reason=reason),
            call("mail:send_message", to=["kim@northwind.example"], subject="Your invoice", body="A new one follows."),
            call("payments:get_balance"),
        )
