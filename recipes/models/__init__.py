"""Model families, one folder or file each; a config stands beside what it builds."""
