"""A policy and an application for dspkit."""
