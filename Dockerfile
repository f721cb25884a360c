# The clone with its packages, for a user who is not root:
#   docker build -t cyclegan .                                            # for CPUs
#   docker build -t cyclegan --build-arg REQUIREMENTS=requirements-gpu.txt .   # for NVIDIA GPUs, with the CUDA libraries
# README.md, "In a container", says how to run it.
ARG PYTHON=3.12
FROM python:${PYTHON}-slim-bookworm
ARG REQUIREMENTS=requirements.txt
ENV PYTHONUNBUFFERED=1 NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
WORKDIR /cyclegan
COPY requirements.txt requirements-gpu.txt ./
RUN pip install --no-cache-dir -r "$REQUIREMENTS" \
    && useradd --create-home --uid 1000 cyclegan \
    && mkdir runs \
    && chown cyclegan runs
COPY train.py ./
COPY scripts scripts
COPY cyclegan cyclegan
USER 1000
ENTRYPOINT ["python"]
CMD ["train.py", "--help"]
