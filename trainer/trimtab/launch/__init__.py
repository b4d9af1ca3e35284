"""What starts the trainers and looks after them: the local launcher (`run`), and the entry of a pod (`worker`)."""
