"""All operators of expressions by name."""

from anamnesis_tests.mongo_server import expression_arrays, expression_forms, expression_functions

FORMS = expression_forms.FORMS
FUNCTIONS = expression_functions.FUNCTIONS | expression_arrays.FUNCTIONS
