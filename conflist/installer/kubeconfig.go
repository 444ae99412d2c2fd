// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/meshcni/meshcni/internal/filesystem"
	"github.com/meshcni/meshcni/kubeconfig"
)

// kubeconfigPart keeps the kubeconfig up to date with the service account's token and certificate.
type kubeconfigPart struct {
	*Installer
	kept [sha256.Size]byte // of the content that was in place at the last look
}

func (i *Installer) kubeconfig() *kubeconfigPart { return &kubeconfigPart{Installer: i.part()} }

func (k *kubeconfigPart) Name() string { return "kubeconfig" }

func (k *kubeconfigPart) Directories() []string {
	file := k.options.Kubeconfig
	directories := []string{k.options.RunDir, filepath.Dir(file.Path), filepath.Dir(file.TokenFile), filepath.Dir(file.CAFile)}
	slices.Sort(directories)
	return slices.Compact(directories)
}

// Concerns reports whether a change of the file at path may concern this part. The kubelet rotates
// a token by replacing a directory that links point to, so any name in the service account's
// directory may be the one that changes.
func (k *kubeconfigPart) Concerns(path string) bool {
	file, directory := k.options.Kubeconfig, filepath.Dir(path)
	return path == file.Path || path == k.claims.path() || directory == filepath.Dir(file.TokenFile) || directory == filepath.Dir(file.CAFile)
}

// Ensure writes the kubeconfig if it differs from what it should be. It is a restore if the wanted
// content has not changed since. A kubeconfig that was written elsewhere stays until the
// configuration names the new one. If the CNI binary directory is full or read-only, the change
// cannot be recorded, but the plugin gets its new token all the same: an uninstall looks for the
// kubeconfig anyway.
func (k *kubeconfigPart) Ensure(ctx context.Context) (Result, error) {
	k.refresh(ctx)
	path := k.options.kubeconfigPath()
	unrecorded := k.claims.update(k.observer, func(c *claim) { c.moveKubeconfig(path) })
	if errors.Is(unrecorded, ErrSuperseded) {
		return Right, unrecorded
	}
	outcome, err := k.write(path)
	if err == nil {
		err = unrecorded
	}
	return outcome, err
}

func (k *kubeconfigPart) write(path string) (Result, error) {
	file, err := k.build()
	if err != nil {
		return Right, err
	}
	if err := k.runDir().Make(runDirMode); err != nil {
		return Right, fmt.Errorf("make the plugin's run directory: %w", explain(err))
	}
	directory := filepath.Dir(path)
	k.removeStale(directory, staleAfter)
	changed, err := k.in(directory).Write(filepath.Base(path), file.YAML(), filesystem.Options{Mode: k.options.Kubeconfig.Mode})
	if err != nil {
		return Right, explain(err)
	}
	before := k.kept
	k.kept = sha256.Sum256(file.YAML())
	if !changed {
		return Right, nil
	}
	k.options.emit(k.noisy(), "wrote the plugin's kubeconfig", "file", path)
	k.options.emit(Detail, "the plugin's kubeconfig, without its secrets", "content", file)
	if k.kept == before {
		return Restored, nil
	}
	return Wrote, nil
}

func (k *kubeconfigPart) build() (kubeconfig.File, error) {
	from := k.options.Kubeconfig
	server, err := kubeconfig.ServerURL(from.Protocol, from.Host, from.Port)
	if err != nil {
		return kubeconfig.File{}, err
	}
	input := kubeconfig.Input{Server: server, Insecure: from.Insecure, Name: from.User}
	token, err := filesystem.ReadThroughLinks(from.TokenFile, maxCredential)
	if err != nil {
		return kubeconfig.File{}, fmt.Errorf("token of the service account: %w", err)
	}
	input.Token = kubeconfig.NewToken(string(bytes.TrimSpace(token)))
	if !from.Insecure {
		if input.CA, err = filesystem.ReadThroughLinks(from.CAFile, maxCredential); err != nil {
			return kubeconfig.File{}, &OptionError{"Kubeconfig.CAFile", fmt.Errorf("certificate of the API server: %w", err)}
		}
	}
	return kubeconfig.Build(input)
}

// kubeconfigs returns the paths of all kubeconfigs that may be on the node: the given one, unless
// it is empty, and those in the claim.
func (c *claim) kubeconfigs(path string) []string {
	var all []string
	for _, path := range slices.Concat([]string{path, c.Kubeconfig}, c.Former) {
		if path != "" && !slices.Contains(all, path) {
			all = append(all, path)
		}
	}
	return all
}

// moveKubeconfig records the new path of the kubeconfig, and keeps the old one.
func (c *claim) moveKubeconfig(path string) {
	c.Kubeconfig, c.Former = path, c.kubeconfigs(path)[1:]
}

// removeFormer removes the kubeconfigs that were written with other options, because no
// configuration names them any more. A kubeconfig whose directory is not mounted in this process
// stays in the claim, for a process that can see it.
func (c *config) removeFormer() {
	current, err := c.claims.load()
	if err != nil || len(current.Former) == 0 {
		return
	}
	var gone []string
	var problems []error
	for _, path := range current.Former {
		directory := filepath.Dir(path)
		if _, err := os.Stat(directory); isMissing(err) {
			continue
		}
		c.removeStale(directory, staleAfter)
		if err := c.remove(path, "the plugin's former kubeconfig"); err != nil {
			problems = append(problems, err)
			continue
		}
		gone = append(gone, path)
	}
	if len(gone) > 0 {
		problems = append(problems, c.claims.update(c.observer, func(c *claim) {
			c.Former = slices.DeleteFunc(c.Former, func(path string) bool { return slices.Contains(gone, path) })
		}))
	}
	err = errors.Join(problems...)
	if said := text(err); said != c.former {
		if c.former = said; err != nil {
			c.options.emit(Warning, "a former kubeconfig, with a token in it, can't be removed; remove it", "error", explain(err))
		}
	}
}
