"""The beginning of every metric's name."""

PREFIX = "elastic_pytorch_"
