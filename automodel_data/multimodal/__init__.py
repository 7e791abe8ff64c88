"""Raw rows, packed on the fly into token budgets: plan first, pixels last.

::

    row --parse--> Sample (texts as ids, images as headers)      jsonl, parquet_utils, vlm_sft, t2i, interleave
        --mixture, policy--> which samples share a pack          packer, mixture, policy: all draws, one thread
        --lay_out--> rows, positions, splits, timesteps          pack_builder: which images survived dropout
        --materialize--> decode and resize those images only     decode, materialize: in threads
        --> SimpleCustomBatch, and a state that names rows       collate_fns, state, loader

Packing needs lengths, and a length needs only a text's token count and an image's header. So nothing is decoded for a
sample that is too long, lost, or dropped as a condition; a buffered sample is a row's name and the decisions made for
it, and resume state is a few kilobytes of plain values.

The formats, names and exact sample streams are those of BAGEL (ByteDance Seed, 2025) and NVIDIA NeMo AutoModel.
"""
