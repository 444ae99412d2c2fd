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
	for _, program := range []string{"workload", "routed"} {
		build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", directory+"/", "./"+program)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if said, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", program, err, said)
		}
	}
	workload := image.Image{
		Architecture: runtime.GOARCH, Entrypoint: []string{"/workload"}, Path: "/",
		Files: []image.File{{Path: "/workload", Source: filepath.Join(directory, "workload")}},
	}
	if err := archive(directory, "workload", product.TestReference("workload", "e2e"), workload); err != nil {
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
