"""The interface of training scripts, by `import elastic_worker as elastic`. Nothing else in the package imports
torch.
"""
