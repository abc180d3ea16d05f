"""The HTTP shell: Litestar routes over the service, and nothing that is not about HTTP."""
