// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Module is a Go module with programs to build.
type Module struct {
	// Name begins the name of its directory in the cache.
	Name string
	// Directory contains the module's go.mod.
	Directory string
	// Packages are the packages to build, as go build accepts them: "." or "tool".
	Packages []string
	// Tags are build tags.
	Tags []string
	// LinkerFlags are the value of -ldflags.
	LinkerFlags []string
}

// Kubernetes returns the module of the Kubernetes programs, below the directory of the end-to-end
// tests. It builds one program, named kubernetes.
func Kubernetes(tests string) Module {
	const major, minor, patch = "1", "34", "4"
	flags := []string{"-s", "-w"}
	for _, of := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags = append(
			flags, "-X", of+".gitVersion=v"+major+"."+minor+"."+patch, "-X", of+".gitMajor="+major, "-X", of+".gitMinor="+minor,
			"-X", of+".gitTreeState=clean",
		)
	}
	return Module{Name: "kubernetes", Directory: filepath.Join(tests, "kubernetes"), Packages: []string{"."}, LinkerFlags: flags}
}

// Runtime returns the module of containerd, its shim and its client, and of the reference CNI
// plugins.
func Runtime(tests string) Module {
	return Module{
		Name:        "runtime",
		Directory:   filepath.Join(tests, "runtime"),
		Packages:    []string{"tool"},
		Tags:        []string{"no_btrfs", "no_devmapper", "no_zfs", "no_aufs"},
		LinkerFlags: []string{"-s", "-w"},
	}
}

// DefaultCache returns the directory for programs: meshcni-e2e in the user's cache directory
// (os.UserCacheDir).
func DefaultCache() (string, error) {
	directory, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("%w; set XDG_CACHE_HOME", err)
	}
	return filepath.Join(directory, "meshcni-e2e"), nil
}

// Cached returns the directory for the module's programs, and whether they are built.
func (m Module) Cached(ctx context.Context, cache string) (directory string, built bool, err error) {
	sum, err := m.sum(ctx)
	if err != nil {
		return "", false, fmt.Errorf("module %s: %w", m.Name, err)
	}
	directory = filepath.Join(cache, m.Name+"-"+sum)
	_, err = os.Stat(directory)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return directory, false, nil
	case err != nil:
		return "", false, err
	}
	return directory, true, nil
}

// Build builds the module's programs, unless they are cached, and returns their directory.
func (m Module) Build(ctx context.Context, cache string) (string, error) {
	directory, built, err := m.Cached(ctx, cache)
	if err != nil || built {
		return directory, err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	unlock, err := lock(filepath.Join(cache, m.Name+".lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	// The previous holder of the lock may have built it.
	if _, built, err = m.Cached(ctx, cache); err != nil || built {
		return directory, err
	}
	unfinished, err := os.MkdirTemp(cache, "unfinished-"+m.Name+"-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(unfinished) }()
	if err := os.Chmod(unfinished, 0o755); err != nil {
		return "", err
	}
	if err := m.compile(ctx, unfinished); err != nil {
		return "", fmt.Errorf("module %s: %w", m.Name, err)
	}
	return directory, os.Rename(unfinished, directory)
}

func (m Module) arguments() []string {
	return []string{"-trimpath", "-buildvcs=false", "-tags", strings.Join(m.Tags, ","), "-ldflags", strings.Join(m.LinkerFlags, " ")}
}

func (m Module) compile(ctx context.Context, directory string) error {
	arguments := slices.Concat([]string{"build", "-o", directory + "/"}, m.arguments(), m.Packages)
	command := exec.CommandContext(ctx, "go", arguments...)
	command.Dir = m.Directory
	// There are many small packages: less frequent garbage collection saves a fifth of the time.
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOGC=400", "GOWORK=off")
	said, err := command.CombinedOutput()
	if err != nil {
		return fmt.Errorf("go build: %w\n%s", err, said)
	}
	return nil
}

// sum returns a checksum of everything that the programs are built from.
func (m Module) sum(ctx context.Context) (string, error) {
	command := exec.CommandContext(ctx, "go", "env", "GOVERSION")
	command.Dir = m.Directory
	version, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("go env: %w", err)
	}
	hash := sha256.New()
	_, _ = fmt.Fprintf(hash, "%s %s %q %q\n", bytes.TrimSpace(version), runtime.GOARCH, m.arguments(), m.Packages)
	entries, err := os.ReadDir(m.Directory)
	if err != nil {
		return "", err
	}
	for _, entry := range entries {
		if entry.IsDir() || strings.HasSuffix(entry.Name(), "_test.go") || entry.Name() == "doc.go" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(m.Directory, entry.Name()))
		if err != nil {
			return "", err
		}
		_, _ = fmt.Fprintf(hash, "%s %d\n%s", entry.Name(), len(text), text)
	}
	return fmt.Sprintf("%x", hash.Sum(nil))[:12], nil
}
