// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/meshcni/meshcni/examples/e2e/internal/product"
)

func main() {
	var r product.Release
	flag.StringVar(&r.Version, "version", "devel", "the product's version, and the image's tag")
	flag.StringVar(&r.Name, "name", "ghcr.io/meshcni/install-cni", "the image's name, with its registry")
	flag.StringVar(&r.Binaries, "binaries", "../../bin", "the `directory` with linux-amd64 and so on")
	flag.StringVar(&r.Directory, "to", "../../bin/release", "the `directory` to write to")
	architectures := flag.String("architectures", "amd64,arm64", "those of the image, separated by commas")
	flag.Parse()
	r.Architectures = strings.Split(*architectures, ",")
	if err := r.Write(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
