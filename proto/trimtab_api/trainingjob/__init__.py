"""The TrainingJob: its types, and how a file becomes one."""

from trimtab_api.trainingjob.load import load_job_file as load_job_file
from trimtab_api.trainingjob.load import load_training_job as load_training_job
from trimtab_api.trainingjob.types import TrainingJob as TrainingJob
