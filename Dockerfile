# ulp on Debian 12, built by the two commands of the README: docker build -t ulp . && docker run --rm ulp --help
FROM debian:12
RUN apt-get update && \
    apt-get install --yes --no-install-recommends ca-certificates make python3 python3-pip && \
    rm -rf /var/lib/apt/lists/*
WORKDIR /ulp
COPY . .
RUN make demo
RUN make test
ENTRYPOINT ["/ulp/build/release/bin/ulp"]
