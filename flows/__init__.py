"""The flows of this project: what a build, a refresh and a publication do, from top to bottom."""
