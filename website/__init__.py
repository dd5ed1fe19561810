"""The documentation site: the documents of the repository, and the reference that the code declares, as one site.

`python -m website` writes it to `build/site`. `navigation.py` has the order of the pages, `sources.py` where each comes
from; `api.py`, `settings.py`, `commands.py`, `errors.py` and `examples.py` write the reference, `build.py` puts all in
one directory and builds it, `finish.py` adds what programs read, and `check.py` refuses dead links, pages that nothing
leads to and public names without an entry.
"""
