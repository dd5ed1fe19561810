"""Tools of APIs, programs and Python modules: what is read from a definition, such as an OpenAPI document."""
