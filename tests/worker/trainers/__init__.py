"""Jobs whose scripts are other people's trainers: transformers and lightning, with real launchers."""
