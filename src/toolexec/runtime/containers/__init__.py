"""The common path of sandboxes that start containers: from a request to a running guest to its complete removal."""
