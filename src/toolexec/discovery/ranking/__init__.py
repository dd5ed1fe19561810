"""How words become a ranking: the machinery behind the BM25 searcher."""
