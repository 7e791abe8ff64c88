"""What is learned from a batch: each task turns a model call into loss terms, as sums and counts.

task.loader(...) --batch--> task.counts(batch)       before any forward: reduced over ranks and accumulation
                        --> task.losses(model, ...)  --LossTerms--> the trainer divides, once
"""
