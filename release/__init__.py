"""Makes a release from a commit: images, chart, manifests, wheels, what is in them, checksums and what has changed."""
