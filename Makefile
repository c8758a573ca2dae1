# Thin calls of dev.py, which also works where make is missing: python3 dev.py lab
PYTHON ?= python3

.PHONY: help lab app demo test report fuzz reproduce bench lint setup clean lock jar docs picture release

help:
	@$(PYTHON) dev.py help

# make test ARGS="-k placement"
lab app demo test report fuzz reproduce lint setup clean lock jar docs picture release:
	@$(PYTHON) dev.py $@ $(ARGS)

# make bench TOPIC=simulator
bench:
	@$(PYTHON) dev.py bench $(TOPIC) $(ARGS)
