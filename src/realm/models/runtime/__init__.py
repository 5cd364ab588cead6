"""Networks without torch: BERT- and MPNet-shaped bodies by ONNX Runtime, heads by numpy, weights mapped from the file that training wrote.

``graph.body_graph`` builds a body's graph, ``body.RuntimeBody`` runs it; ``networks.RuntimeEmbedder`` and ``networks.RuntimeReader`` stand
for ``models.embedder.Embedder`` and ``models.reader.Reader`` wherever nothing learns. Nothing here imports torch."""
