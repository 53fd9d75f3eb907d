"""Which rows train and which are held out."""
