"""What a training script calls, by `import elastic_worker as elastic`. Nothing else in the package imports torch."""
