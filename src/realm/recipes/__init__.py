"""One file a stage: build the objects, define the step, call the one training loop, publish the result."""
