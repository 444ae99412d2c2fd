// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/meshcni/meshcni/internal/filesystem"
	"github.com/meshcni/meshcni/internal/upkeep"
	"github.com/meshcni/meshcni/kubeconfig"
)

// Kubeconfig keeps the plugin's way to the API server in step with the service account's token and certificate.
type Kubeconfig struct {
	*Installer
	kept [sha256.Size]byte // of what was in place when it was last looked at
}

// Name is "kubeconfig".
func (k *Kubeconfig) Name() string { return "kubeconfig" }

// Directories are those whose changes concern this part.
func (k *Kubeconfig) Directories() []string {
	directories := []string{k.settings.RunDir, filepath.Dir(kubeconfigPath(k.settings)), k.settings.ServiceAccountDir}
	if k.settings.CAFile != "" {
		directories = append(directories, filepath.Dir(k.settings.CAFile))
	}
	return directories
}

// Concerns reports whether a change of the file at path may need this part. The kubelet rotates a token by exchanging a directory
// behind links, so that any name in the service account's directory may be the one that changes.
func (k *Kubeconfig) Concerns(path string) bool {
	return path == kubeconfigPath(k.settings) || path == k.claims.path() || filepath.Dir(path) == k.settings.ServiceAccountDir ||
		(k.settings.CAFile != "" && filepath.Dir(path) == filepath.Dir(k.settings.CAFile))
}

// Ensure writes the kubeconfig if it isn't what it should be. It is a restore if that hasn't changed since. That this can't be recorded, since
// the CNI binary directory is full or read-only, doesn't keep the plugin from its new token: an uninstall looks for the kubeconfig anyhow.
func (k *Kubeconfig) Ensure(ctx context.Context) (upkeep.Outcome, error) {
	k.refresh()
	path := kubeconfigPath(k.settings)
	unrecorded := k.claims.update(func(c *claim) { c.Kubeconfig = path })
	if errors.Is(unrecorded, ErrSuperseded) {
		return upkeep.Right, unrecorded
	}
	outcome, err := k.write(ctx, path)
	if err == nil {
		err = unrecorded
	}
	return outcome, err
}

func (k *Kubeconfig) write(ctx context.Context, path string) (upkeep.Outcome, error) {
	file, err := k.build()
	if err != nil {
		return upkeep.Right, err
	}
	if err := k.runDir().Make(runDirMode); err != nil {
		return upkeep.Right, fmt.Errorf("make the plugin's run directory: %w", explain(err))
	}
	directory := filepath.Dir(path)
	k.removeStale(directory, staleAfter)
	changed, err := k.in(directory).Write(filepath.Base(path), file.YAML(), filesystem.Options{Mode: k.settings.KubeconfigMode})
	if err != nil {
		return upkeep.Right, explain(err)
	}
	before := k.kept
	k.kept = sha256.Sum256(file.YAML())
	if !changed {
		return upkeep.Right, nil
	}
	k.log.Log(ctx, k.noisy(), "wrote the plugin's kubeconfig", "file", path)
	k.log.Debug("the plugin's kubeconfig, without its secrets", "content", file)
	if k.kept == before {
		return upkeep.Restored, nil
	}
	return upkeep.Wrote, nil
}

// build makes the kubeconfig of the environment's API server and the service account of this moment.
func (k *Kubeconfig) build() (kubeconfig.File, error) {
	server, err := kubeconfig.ServerURL(k.settings.APIProtocol, k.settings.APIHost, k.settings.APIPort)
	if err != nil {
		return kubeconfig.File{}, err
	}
	input := kubeconfig.Input{Server: server, Insecure: k.settings.SkipTLSVerify, Name: pluginType}
	token, err := readCredential(filepath.Join(k.settings.ServiceAccountDir, "token"))
	if err != nil {
		return kubeconfig.File{}, fmt.Errorf("token of the service account: %w", err)
	}
	input.Token = kubeconfig.NewToken(string(bytes.TrimSpace(token)))
	if !k.settings.SkipTLSVerify {
		if input.CA, err = readCredential(k.settings.CAPath()); err != nil {
			return kubeconfig.File{}, fmt.Errorf("certificate of the API server: %w; name its file with kube-ca-file, or set skip-tls-verify", err)
		}
	}
	return kubeconfig.Build(input)
}

// readCredential reads a file of the service account, which is a link that the kubelet moves.
func readCredential(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // only read from
	data, err := io.ReadAll(io.LimitReader(file, maxCredential+1))
	if err == nil && len(data) > maxCredential {
		err = fmt.Errorf("%s is larger than %d bytes", path, maxCredential)
	}
	return data, err
}
