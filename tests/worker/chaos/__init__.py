"""Random faults against a training job, for as long as one likes: it must finish, and leave nothing behind."""
