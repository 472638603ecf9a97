"""The custom resources as pydantic models, and the CRDs generated from them. Pure."""
