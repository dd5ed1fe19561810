"""The road of all sandboxes that start containers: from a request to a guest that runs, and to nothing that stays."""
