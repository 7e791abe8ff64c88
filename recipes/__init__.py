"""What trains on ``automodel_data``: typed configs, a trainer of one screen, models small enough for CPU."""
