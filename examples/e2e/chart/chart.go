// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"fmt"
	"path"
	"slices"
	"strings"

	helmchart "helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	helmrelease "helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/releaseutil"
	"sigs.k8s.io/yaml"
)

// Chart is a loaded chart, made by [Load].
type Chart struct{ chart *helmchart.Chart }

// Release is the release that a chart is installed as.
type Release struct {
	Name      string
	Namespace string
	// KubeVersion is the cluster's version, such as v1.34.4; empty stands for the default of Helm's
	// library.
	KubeVersion string
}

// Values are the content of a values file, decoded as JSON.
type Values = map[string]any

// Load reads a chart from its directory.
func Load(directory string) (Chart, error) {
	c, err := loader.LoadDir(directory)
	if err != nil {
		return Chart{}, fmt.Errorf("read the chart %s: %w", directory, err)
	}
	return Chart{c}, nil
}

// ParseValues reads a values file.
func ParseValues(text string) (Values, error) {
	values, err := chartutil.ReadValues([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("read values: %w", err)
	}
	return values, nil
}

// Rendering is the content of a release.
type Rendering struct {
	// Objects are created in this order; hooks are separate.
	Objects []Object
	// Hooks are the objects that Helm creates before it deletes the release.
	Hooks []Object
	// Notes is the text that Helm prints.
	Notes string
}

// Object is one object of a rendering.
type Object struct {
	// Text is the object's YAML, with the template's comments.
	Text string
	// Content is the object, decoded as JSON.
	Content map[string]any
}

// APIVersion returns the group and version of the object's kind.
func (o Object) APIVersion() string { return text(o.Content, "apiVersion") }

// Kind returns the object's kind, such as DaemonSet.
func (o Object) Kind() string { return text(o.Content, "kind") }

// Name returns the object's name. Another object of the same kind may have it in another namespace.
func (o Object) Name() string { return text(o.Content, "metadata", "name") }

// Namespace returns the object's namespace; empty for objects of the whole cluster.
func (o Object) Namespace() string { return text(o.Content, "metadata", "namespace") }

// Render renders the chart with values that override its own. The error is the one that Helm would
// print: the schema or a template refuses the values.
func (c Chart) Render(release Release, values Values) (Rendering, error) {
	capabilities := chartutil.DefaultCapabilities.Copy()
	if release.KubeVersion != "" {
		version, err := chartutil.ParseKubeVersion(release.KubeVersion)
		if err != nil {
			return Rendering{}, fmt.Errorf("version of Kubernetes: %w", err)
		}
		version.Version = release.KubeVersion // with a distribution's suffix
		capabilities.KubeVersion = *version
	}
	options := chartutil.ReleaseOptions{Name: release.Name, Namespace: release.Namespace, Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(c.chart, values, options, capabilities)
	if err != nil {
		return Rendering{}, err
	}
	files, err := engine.Render(c.chart, all)
	if err != nil {
		return Rendering{}, err
	}
	var r Rendering
	for name, content := range files {
		if path.Base(name) == "NOTES.txt" {
			r.Notes = content
			delete(files, name)
		}
	}
	hooks, manifests, err := releaseutil.SortManifests(files, capabilities.APIVersions, releaseutil.InstallOrder)
	if err != nil {
		return Rendering{}, fmt.Errorf("sort what was rendered: %w", err)
	}
	for _, manifest := range manifests {
		if r.Objects, err = appendObject(r.Objects, manifest.Content); err != nil {
			return Rendering{}, err
		}
	}
	slices.SortStableFunc(hooks, func(a, b *helmrelease.Hook) int { return a.Weight - b.Weight })
	for _, hook := range hooks {
		if r.Hooks, err = appendObject(r.Hooks, hook.Manifest); err != nil {
			return Rendering{}, err
		}
	}
	return r, nil
}

func appendObject(objects []Object, manifest string) ([]Object, error) {
	var content map[string]any
	if err := yaml.UnmarshalStrict([]byte(manifest), &content); err != nil {
		return nil, fmt.Errorf("%w in\n%s", err, manifest)
	}
	if len(content) == 0 {
		return objects, nil
	}
	return append(objects, Object{strings.TrimSpace(manifest) + "\n", content}), nil
}

// text returns a string in nested objects; empty if it is missing.
func text(content map[string]any, keys ...string) string {
	for _, key := range keys[:len(keys)-1] {
		content, _ = content[key].(map[string]any)
	}
	value, _ := content[keys[len(keys)-1]].(string)
	return value
}

// Manifest returns the rendering, without hooks, for kubectl apply.
func (r Rendering) Manifest(head string) string {
	var out strings.Builder
	out.WriteString(head)
	for _, o := range r.Objects {
		out.WriteString("---\n")
		for line := range strings.Lines(o.Text) {
			if !ofHelm(strings.TrimSpace(line)) {
				out.WriteString(line)
			}
		}
	}
	return out.String()
}

// ofHelm reports whether a line names Helm as the installer, or repeats the licence.
func ofHelm(words string) bool {
	return strings.HasPrefix(words, "helm.sh/chart:") || strings.HasPrefix(words, "app.kubernetes.io/managed-by:") ||
		strings.HasPrefix(words, "# SPDX-")
}
