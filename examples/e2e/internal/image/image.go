// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Image is an image for one architecture.
type Image struct {
	// Architecture is GOARCH's name for it.
	Architecture string
	// Files are the image's files. Their directories are created.
	Files []File
	// Entrypoint is the program, with arguments, that a container runs.
	Entrypoint []string
	// User runs the program; "" stands for root.
	User string
	// Path is the environment variable PATH.
	Path string
	// Labels are those of the image's configuration (opencontainers/image-spec, annotations.md).
	Labels map[string]string
}

// File is an executable in an image.
type File struct {
	// Path is the file's path in the image.
	Path string
	// Source is the file to copy.
	Source string
}

// Archive writes an OCI archive with one image for several architectures. name is the image's full
// name, with registry and tag.
func Archive(w io.Writer, name string, images ...Image) error {
	index := mutate.IndexMediaType(v1.ImageIndex(empty.Index), types.OCIImageIndex)
	for _, i := range images {
		built, err := i.build()
		if err != nil {
			return fmt.Errorf("image %s for %s: %w", name, i.Architecture, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: built, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: i.Architecture}},
		})
	}
	_, tag, tagged := strings.Cut(name[strings.LastIndex(name, "/")+1:], ":")
	if !tagged {
		return fmt.Errorf("image %q: the name needs a tag", name)
	}
	named := mutate.AppendManifests(mutate.IndexMediaType(v1.ImageIndex(empty.Index), types.OCIImageIndex), mutate.IndexAddendum{
		Add: index,
		Descriptor: v1.Descriptor{Annotations: map[string]string{
			"io.containerd.image.name": name, "org.opencontainers.image.ref.name": tag,
		}},
	})
	directory, err := os.MkdirTemp("", "image-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(directory) }()
	if _, err := layout.Write(directory, named); err != nil {
		return fmt.Errorf("image %s: %w", name, err)
	}
	return writeTree(w, directory)
}

func (i Image) build() (v1.Image, error) {
	content, err := i.layer()
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }, tarball.WithMediaType(types.OCILayer),
	)
	if err != nil {
		return nil, err
	}
	built := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if built, err = mutate.AppendLayers(built, layer); err != nil {
		return nil, err
	}
	file, err := built.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.Architecture, file.OS, file.Created = i.Architecture, "linux", v1.Time{Time: time.Unix(0, 0).UTC()}
	file.Config = v1.Config{Entrypoint: i.Entrypoint, User: i.User, Labels: i.Labels, WorkingDir: "/"}
	if i.Path != "" {
		file.Config.Env = []string{"PATH=" + i.Path}
	}
	return mutate.ConfigFile(built, file)
}

// layer returns an archive of the files and their directories.
func (i Image) layer() ([]byte, error) {
	var content bytes.Buffer
	archive := tar.NewWriter(&content)
	made := map[string]bool{".": true}
	var directory func(string) error
	directory = func(name string) error {
		if made[name] {
			return nil
		}
		made[name] = true
		if err := directory(path.Dir(name)); err != nil {
			return err
		}
		return archive.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755, ModTime: time.Unix(0, 0)})
	}
	files := slices.SortedFunc(slices.Values(i.Files), func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	for _, file := range files {
		name := strings.TrimPrefix(path.Clean("/"+file.Path), "/")
		if err := directory(path.Dir(name)); err != nil {
			return nil, err
		}
		text, err := os.ReadFile(file.Source)
		if err != nil {
			return nil, err
		}
		header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755, Size: int64(len(text)), ModTime: time.Unix(0, 0)}
		if err := archive.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := archive.Write(text); err != nil {
			return nil, err
		}
	}
	return content.Bytes(), archive.Close()
}

// writeTree writes an archive of a directory, sorted by name (filepath.WalkDir).
func writeTree(w io.Writer, directory string) error {
	archive := tar.NewWriter(w)
	err := filepath.WalkDir(directory, func(name string, entry os.DirEntry, err error) error {
		if err != nil || name == directory {
			return err
		}
		relative, err := filepath.Rel(directory, name)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return archive.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: relative + "/", Mode: 0o755, ModTime: time.Unix(0, 0)})
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		header := &tar.Header{Typeflag: tar.TypeReg, Name: relative, Mode: 0o644, Size: int64(len(text)), ModTime: time.Unix(0, 0)}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		_, err = archive.Write(text)
		return err
	})
	if err != nil {
		return err
	}
	return archive.Close()
}
