"""Loading a model: how long a fresh process needs for the weights, and how much memory it adds."""

from dataflow.studies import Study

STUDY = Study()
