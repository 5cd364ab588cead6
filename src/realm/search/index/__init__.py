"""Kinds of index over vectors of blocks: exact, compressed, clustered; what all share, the native kernel, and the choice by rows."""
