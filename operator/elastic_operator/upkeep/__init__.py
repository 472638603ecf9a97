"""Tasks beside the passes that keep other objects than jobs up to date."""
