// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"time"

	"github.com/meshcni/meshcni/examples/e2e/internal/image"
	"github.com/meshcni/meshcni/examples/e2e/internal/product"
	"github.com/meshcni/meshcni/examples/e2e/internal/programs"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	binaries := flag.String("binaries", "../../bin/e2e", "the directory with the product's binaries of each version, in e2e-1 and e2e-2")
	flag.Parse()
	if err := prepare(ctx, *binaries); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// prepare builds everything.
func prepare(ctx context.Context, directory string) error {
	// Debian 12 has version 1.6, which one scenario needs.
	install := exec.CommandContext(ctx, "../../.ci/prerequisites", "containerd")
	install.Stdout, install.Stderr = os.Stdout, os.Stderr
	if err := install.Run(); err != nil {
		return fmt.Errorf("containerd of the distribution: %w", err)
	}
	cache, err := programs.DefaultCache()
	if err != nil {
		return err
	}
	for _, module := range []programs.Module{programs.Kubernetes("."), programs.Runtime(".")} {
		start := time.Now()
		_, built, err := module.Cached(ctx, cache)
		if err != nil {
			return err
		}
		if !built {
			fmt.Printf("building %s, which takes minutes, once\n", module.Name)
		}
		kept, err := module.Build(ctx, cache)
		if err != nil {
			return err
		}
		if !built {
			fmt.Printf("built %s in %.0f s: %s\n", module.Name, time.Since(start).Seconds(), kept)
		}
	}
	return images(ctx, directory)
}

// images writes the archives of images that nodes import.
func images(ctx context.Context, directory string) error {
	// The stand-in for the proxy is in the product's module, which is not this one.
	for program, module := range map[string]string{"./workload": ".", "./routed": ".", "./examples/stand-in-proxy": "../.."} {
		if err := build(ctx, module, program, directory); err != nil {
			return err
		}
	}
	workload := image.Image{
		Architecture: runtime.GOARCH, Entrypoint: []string{"/workload"}, Path: "/",
		Files: []image.File{{Path: "/workload", Source: filepath.Join(directory, "workload")}},
	}
	if err := archive(directory, "workload", product.TestReference("workload", "e2e"), workload); err != nil {
		return err
	}
	const ztunnel = "/usr/local/bin/ztunnel" // where Istio's image has the proxy
	proxy := image.Image{
		Architecture: runtime.GOARCH, Entrypoint: []string{ztunnel}, Path: "/usr/local/bin",
		Files: []image.File{{Path: ztunnel, Source: filepath.Join(directory, "stand-in-proxy")}},
	}
	if err := archive(directory, "ztunnel", product.TestReference("ztunnel", "e2e"), proxy); err != nil {
		return err
	}
	for _, version := range []string{"e2e-1", "e2e-2"} {
		built := product.Image(runtime.GOARCH, filepath.Join(directory, version), version)
		if err := archive(directory, "install-cni-"+version, product.TestReference("install-cni", version), built); err != nil {
			return err
		}
	}
	return nil
}

// build builds a program of a module into a directory.
func build(ctx context.Context, module, program, directory string) error {
	output, err := filepath.Abs(directory)
	if err != nil {
		return err
	}
	command := exec.CommandContext(ctx, "go", "build", "-C", module, "-trimpath", "-ldflags", "-s -w", "-o", output+"/", program)
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", program, err, said)
	}
	return nil
}

// archive writes one image to NAME.tar.
func archive(directory, name, reference string, built image.Image) error {
	file, err := os.Create(filepath.Join(directory, name+".tar"))
	if err != nil {
		return err
	}
	if err := image.Archive(file, reference, built); err != nil {
		_ = file.Close()
		return err
	}
	return file.Close()
}
