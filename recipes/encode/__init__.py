"""Make latent caches: images and texts are encoded once, then trained from many times.

::

    folder or parquet --sources--> RawRow --Layout.parse--> Row --preparing--> Prepared: key, pixels of bucket size
        --encoder--> latents, text --Layout.payload--> writer: payload file, then a line of the journal
    all rows done --> shards, metadata.json, manifest.jsonl

A row's key is the hash of all that decides its payload: image bytes, text, transform, encoder. It is the payload's file
name too, so what exists is right, whatever was interrupted, and a second run encodes exactly what changed.
"""
