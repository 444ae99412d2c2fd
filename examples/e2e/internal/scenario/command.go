// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"path/filepath"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart/loader"
)

// ErrCommand is in the error of [Suite.Helm] for an unknown command line.
var ErrCommand = errors.New("no command of Helm that the tests know")

// Helm runs a Helm command line: install RELEASE CHART, or uninstall RELEASE, with those flags of
// both that the documentation uses. The chart is a directory of the repository.
func (s *Suite) Helm(ctx context.Context, words ...string) error {
	configuration, err := s.helm()
	if err != nil {
		return err
	}
	flags := flag.NewFlagSet("helm", flag.ContinueOnError)
	namespace := flags.String("namespace", "", "")
	create := flags.Bool("create-namespace", false, "")
	operands := map[string]int{"install": 2, "uninstall": 1}
	if len(words) == 0 || len(words) < 1+operands[words[0]] || operands[words[0]] == 0 {
		return fmt.Errorf("%w: %q", ErrCommand, words)
	}
	rest := words[1+operands[words[0]]:]
	if err := flags.Parse(rest); err != nil || flags.NArg() > 0 || *namespace != SystemNamespace {
		return fmt.Errorf("%w: %q: %w", ErrCommand, words, err)
	}
	if words[0] == "uninstall" {
		return s.UninstallRelease(words[1])
	}
	chart, err := loader.Load(filepath.Join("../..", words[2]))
	if err != nil {
		return fmt.Errorf("load the chart: %w", err)
	}
	s.installation.forget()
	install := action.NewInstall(configuration)
	install.ReleaseName, install.Namespace, install.CreateNamespace, install.Timeout = words[1], *namespace, *create, mostHelm
	if _, err := install.RunWithContext(ctx, chart, nil); err != nil {
		return fmt.Errorf("%q: %w", words, err)
	}
	return nil
}
