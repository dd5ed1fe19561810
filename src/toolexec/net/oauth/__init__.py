"""Log in to servers with OAuth 2.1: discovery, flows, tokens, and where they are kept."""
