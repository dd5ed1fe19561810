"""An `Exec` as the toolset of other people's agent loops; each file is for one of them."""
