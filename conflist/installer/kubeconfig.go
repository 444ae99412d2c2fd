// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
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
