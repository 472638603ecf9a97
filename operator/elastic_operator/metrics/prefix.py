"""How the name of every metric begins."""

PREFIX = "elastic_pytorch_"
