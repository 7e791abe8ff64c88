"""Packs as one HTML page that needs nothing else: what the model will see, where it comes from, what it learns.

::

    run config -> run.draw: packs as the training loader hands them out
        pictures.unpack -> describe: views, with texts spelled, images as data URIs and rows named
        mask: who sees whom, as a picture
            -> page: page.html.jinja, page.css, page.js -> preview.html
"""
