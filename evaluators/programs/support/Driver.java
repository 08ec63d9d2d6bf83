// Compiles a program in memory and runs its class Main, in one JVM. Standard input: one line with
// the nonce, then the source. Writes C to descriptor 3 when it compiled, the nonce when main
// returned.
import java.io.ByteArrayOutputStream;
import java.io.FileOutputStream;
import java.io.OutputStream;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import javax.tools.Diagnostic;
import javax.tools.DiagnosticCollector;
import javax.tools.FileObject;
import javax.tools.ForwardingJavaFileManager;
import javax.tools.JavaCompiler;
import javax.tools.JavaFileManager;
import javax.tools.JavaFileObject;
import javax.tools.SimpleJavaFileObject;
import javax.tools.ToolProvider;

public final class Driver {
  private static final class Source extends SimpleJavaFileObject {
    private final String text;
    Source(String text) {
      super(URI.create("string:///Main.java"), Kind.SOURCE);
      this.text = text;
    }
    @Override
    public CharSequence getCharContent(boolean ignoreEncodingErrors) {
      return text;
    }
  }

  private static final class Compiled extends SimpleJavaFileObject {
    final ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    Compiled(String name) {
      super(URI.create("mem:///" + name.replace('.', '/') + ".class"), Kind.CLASS);
    }
    @Override
    public OutputStream openOutputStream() {
      return bytes;
    }
  }

  private static final class Memory extends ForwardingJavaFileManager<JavaFileManager> {
    final Map<String, Compiled> classes = new HashMap<>();
    Memory(JavaFileManager manager) {
      super(manager);
    }
    @Override
    public JavaFileObject getJavaFileForOutput(
        Location location, String name, JavaFileObject.Kind kind, FileObject sibling) {
      return classes.computeIfAbsent(name, Compiled::new);
    }
  }

  private static final class Loader extends ClassLoader {
    private final Map<String, Compiled> classes;
    Loader(Map<String, Compiled> classes) {
      this.classes = classes;
    }
    @Override
    protected Class<?> findClass(String name) throws ClassNotFoundException {
      final Compiled found = classes.get(name);
      if (found == null) throw new ClassNotFoundException(name);
      final byte[] bytes = found.bytes.toByteArray();
      return defineClass(name, bytes, 0, bytes.length);
    }
  }

  public static void main(String[] arguments) throws Throwable {
    final FileOutputStream control = new FileOutputStream("/dev/fd/3");
    final byte[] input = System.in.readAllBytes();
    int end = 0;
    while (input[end] != '\n') ++end;
    final byte[] nonce = java.util.Arrays.copyOf(input, end);
    final String text = new String(input, end + 1, input.length - end - 1, StandardCharsets.UTF_8);

    final JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
    final DiagnosticCollector<JavaFileObject> messages = new DiagnosticCollector<>();
    final Memory memory =
        new Memory(compiler.getStandardFileManager(messages, null, StandardCharsets.UTF_8));
    final boolean good =
        compiler
            .getTask(null, memory, messages, List.of("-proc:none", "-nowarn", "-Xlint:none"), null,
                List.of(new Source(text)))
            .call();
    if (!good) {
      for (Diagnostic<?> message : messages.getDiagnostics())
        if (message.getKind() == Diagnostic.Kind.ERROR) System.err.println(message);
      System.exit(1);
    }
    control.write('C');
    try {
      Class.forName("Main", true, new Loader(memory.classes))
          .getMethod("main", String[].class)
          .invoke(null, (Object) new String[0]);
    } catch (java.lang.reflect.InvocationTargetException thrown) {
      thrown.getCause().printStackTrace();
      System.exit(1);
    } catch (ReflectiveOperationException wrong) {
      wrong.printStackTrace();
      System.exit(1);
    }
    control.write(nonce);
    System.exit(0);
  }
}
