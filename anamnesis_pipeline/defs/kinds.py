"""What the Dagster UI shows of the systems behind the assets: those of this deployment's store."""

from anamnesis_pipeline import settings as settings_module

_IS_MONGO = settings_module.load().store == "mongo"

STORE_KIND = "mongodb" if _IS_MONGO else "sqlite"
INDEX_KIND = "mongodb" if _IS_MONGO else "usearch"
